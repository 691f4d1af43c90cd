"""Record `data/`: partition directories that Apache Kafka wrote and closed, for `test_apache_kafka_segments.py`.

python tests/storage/record_segments.py
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from apache_kafka import ApacheKafka, run_java  # noqa: E402

TOPICS = ("none", "gzip", "snappy", "lz4", "zstd", "transactions")
KEPT = (".log", ".index", ".timeindex", ".snapshot", ".txnindex", "leader-epoch-checkpoint", "partition.metadata")


def main() -> None:
    with ApacheKafka() as kafka:
        run_java(HERE / "ProduceBatches.java", kafka.bootstrap)
        kafka.stop()
        for topic in TOPICS:
            target = HERE / "data" / f"{topic}-0"
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for file in sorted((kafka.data_dir / f"{topic}-0").iterdir()):
                if file.name.endswith(KEPT):
                    shutil.copyfile(file, target / file.name)


if __name__ == "__main__":
    main()
