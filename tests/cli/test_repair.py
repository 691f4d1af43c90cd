"""`coterie serve` on a damaged directory, and `coterie repair`."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from broker.peer import Peer, Serving

COTERIE = str(Path(sys.executable).with_name("coterie"))


def repair(data: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [COTERIE, "repair", str(data), *options], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def served(data: Path, records: int) -> None:
    """So many records more, and a clean stop."""
    with Serving(data) as broker:
        with Peer(broker.ready()) as peer:
            if not records:
                assert [offset for offset, _ in peer.read_all("orders")] == [0, 2]
                assert peer.produce("orders", b"more").base_offset == 3
            else:
                peer.create("orders")
                for number in range(records):
                    assert not peer.produce("orders", b"%d" % number).error
        broker.signal()
        assert broker.ended()[0] == 0


def test_damage_is_refused_shown_and_repaired(tmp_path: Path) -> None:
    data = tmp_path / "data"
    served(data, 3)
    assert repair(data)[0] == 0
    segment = data / "orders-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[len(content) * 2 // 3 - 1] ^= 1  # in the second of three batches
    content += b"torn"
    segment.write_bytes(content)
    with Serving(data) as broker:
        status, said = broker.ended()
    assert status == 1 and "Traceback" not in said
    assert f"orders-0/{0:020d}.log has" in said and "coterie repair" in said
    status, said = repair(data)
    assert status == 1 and "lost: offsets 1 to 1 of orders-0 (1)" in said and "Nothing was changed" in said
    assert segment.read_bytes() == content
    status, said = repair(data, "--accept-loss")
    assert status == 0 and "Repaired" in said
    (aside,) = data.glob("damaged-*")
    assert (aside / "orders-0" / segment.name).read_bytes() == content
    assert "offsets 1 to 1 of orders-0" in (aside / "report.txt").read_text()
    served(data, 0)


def test_repair_says_what_it_cannot_look_at(tmp_path: Path) -> None:
    status, said = repair(tmp_path)
    assert status == 1 and "not a data directory" in said and "Traceback" not in said
    status, said = repair(tmp_path / "nowhere")
    assert status == 1 and "is not a directory" in said and not (tmp_path / "nowhere").exists()


def test_records_are_for_nobody_but_their_owner(tmp_path: Path) -> None:
    data = tmp_path / "data"
    served(data, 1)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in data.rglob("*") if path.is_file()}
    directories = {stat.S_IMODE(path.stat().st_mode) for path in [data, *data.rglob("*")] if path.is_dir()}
    assert modes == {0o600} and directories == {0o700}
