from __future__ import annotations

from client_tasks.task import Task, main

from coterie.client.consumer.consumer import Consumer
from coterie.client.producer.producer import Producer


def produce(task: Task) -> int:
    with Producer(bootstrap_servers=task.bootstrap, **task.settings) as producer:
        value = task.value
        for _ in range(task.records):
            delivery = producer.send(task.topic, value)
        producer.flush()
        delivery.result()
    return task.records


def consume(task: Task) -> int:
    done = size = 0
    with Consumer(bootstrap_servers=task.bootstrap, group_id=task.group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(task.topic)
        while done < task.records:
            for record in consumer.poll():
                size += len(record.value or b"")
                done += 1
    return task.seen(done, size)


def iterate(task: Task) -> int:
    done = size = 0
    with Consumer(bootstrap_servers=task.bootstrap, group_id=task.group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(task.topic)
        for record in consumer:
            size += len(record.value or b"")
            done += 1
            if done == task.records:
                break
    return task.seen(done, size)


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "iterate": iterate})
