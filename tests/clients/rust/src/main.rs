//! A transactional producer by the crate rdkafka, which does what the lines of stdin tell it, one after the other. With a
//! group it reads, writes and commits its offsets. tests/clients/go/transactions/main.go does the same.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

const PATIENCE: Duration = Duration::from_secs(60);

struct Program {
    source: String,
    target: String,
    producer: BaseProducer,
    consumer: Option<BaseConsumer>,
}

fn text(told: &Value, name: &str) -> String {
    told[name].as_str().unwrap_or_default().to_string()
}

impl Program {
    fn new(told: &Value) -> Result<Program, KafkaError> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", text(told, "bootstrap"))
            .set("transactional.id", text(told, "transactional_id"))
            .set("transaction.timeout.ms", told["timeout_ms"].to_string())
            .set("log_level", "0")
            .create()?;
        let group = text(told, "group");
        let mut program = Program {
            source: text(told, "source"),
            target: text(told, "target"),
            producer,
            consumer: None,
        };
        if !group.is_empty() {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", text(told, "bootstrap"))
                .set("group.id", group)
                .set("session.timeout.ms", "2000") // so that the member of a program that was killed is soon gone
                .set("heartbeat.interval.ms", "200")
                .set("enable.auto.commit", "false")
                .set("auto.offset.reset", "earliest")
                .set("isolation.level", "read_committed")
                .set("log_level", "0")
                .create()?;
            consumer.subscribe(&[&program.source])?;
            program.consumer = Some(consumer);
        }
        Ok(program)
    }

    fn send(&self, value: &str) -> Result<(), KafkaError> {
        let record: BaseRecord<str, str> = BaseRecord::to(&self.target).payload(value).partition(0);
        self.producer.send(record).map_err(|(error, _)| error)?;
        self.producer.flush(PATIENCE)
    }

    /// Write what was read, each value with "out-" before it, and add the offset after it to the transaction.
    fn process(&self, count: u64) -> Result<(), KafkaError> {
        let consumer = self.consumer.as_ref().expect("a group");
        let mut next = 0;
        for _ in 0..count {
            let message = loop {
                if let Some(found) = consumer.poll(PATIENCE) {
                    break found?;
                }
            };
            let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).to_string();
            next = message.offset() + 1;
            self.send(&format!("out-{value}"))?;
        }
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(&self.source, 0, Offset::Offset(next))?;
        let group = consumer.group_metadata().expect("a member");
        self.producer
            .send_offsets_to_transaction(&offsets, &group, PATIENCE)
    }

    /// Abort, and read again from the offsets that are committed.
    fn abort(&self) -> Result<(), KafkaError> {
        self.producer.abort_transaction(PATIENCE)?;
        if let Some(consumer) = &self.consumer {
            for element in consumer.committed(PATIENCE)?.elements() {
                let offset = match element.offset() {
                    Offset::Offset(number) => Offset::Offset(number),
                    _ => Offset::Beginning,
                };
                consumer.seek(element.topic(), element.partition(), offset, PATIENCE)?;
            }
        }
        Ok(())
    }

    fn act(&self, step: &Value) -> Result<(), KafkaError> {
        match step["do"].as_str().unwrap_or_default() {
            "init" => self.producer.init_transactions(PATIENCE),
            "begin" => self.producer.begin_transaction(),
            "send" => self.send(&text(step, "value")),
            "process" => self.process(step["count"].as_u64().unwrap_or(0)),
            "commit" => self.producer.commit_transaction(PATIENCE),
            "abort" => self.abort(),
            other => panic!("what is {other:?}?"),
        }
    }
}

fn main() {
    let told: Value =
        serde_json::from_str(&std::env::args().nth(1).expect("orders")).expect("JSON");
    let program = Program::new(&told).expect("a producer");
    for line in io::stdin().lock().lines() {
        let step: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let answer = match program.act(&step) {
            Ok(()) => json!({}),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{answer}");
        io::stdout().flush().expect("stdout");
    }
}
