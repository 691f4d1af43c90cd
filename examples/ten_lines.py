"""A broker, three orders, and a member of a group that reads them."""

import coterie

with coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
    where = {"bootstrap.servers": broker.bootstrap_servers}
    with coterie.Producer(where) as producer:
        for drink in ("coffee", "tea", "water"):
            producer.send("orders", drink, key="table 4")
    with coterie.Consumer(where, group_id="bar", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"], on_assigned=lambda partitions: print("mine:", *partitions))
        for record in consumer:
            print(record.offset, record.key, record.value)
            if record.offset == 2:
                break
