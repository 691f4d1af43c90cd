from __future__ import annotations

from client_tasks.task import Task, main

from coterie.client.producer import Producer


def produce(task: Task) -> int:
    with Producer(bootstrap_servers=task.bootstrap, **task.settings) as producer:
        value = task.value
        for _ in range(task.records):
            delivery = producer.send(task.topic, value)
        producer.flush()
        delivery.result()
    return task.records


if __name__ == "__main__":
    main({"produce": produce})
