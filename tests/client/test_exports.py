from __future__ import annotations

import subprocess
import sys

import coterie
import coterie.client.admin as admin_room


def test_the_admin_room_exports_exactly_what_it_names() -> None:
    public = {
        name for name, value in vars(admin_room).items() if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public | {"EARLIEST", "LATEST", "MAX_TIMESTAMP"} == set(admin_room.__all__)


def test_public_names_load_when_they_are_asked_for() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    program = "import sys, coterie; print(sorted(name for name in sys.modules if name.startswith('coterie')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['coterie', 'coterie.version']"


def test_dir_lists_the_public_names() -> None:
    assert dir(coterie) == sorted(coterie.__all__)
    program = "import sys, coterie; dir(coterie); print('coterie.broker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", "looking loads nothing"
