"""The command line as people meet it: a process with a terminal, without one, and with Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from sfumato.cli import run
from sfumato.guarantee import rounded_up
from tests.cli.conftest import SMALL
from tests.patience import PATIENCE

SFUMATO = str(Path(sys.executable).parent / "sfumato")

LAZY = """
import sys
import sfumato
def check(what):
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib"} & set(sys.modules)
    assert not heavy, (what, heavy)
check("import sfumato")
from sfumato.cli import run
for words in (["--version"], ["--help"], ["train", "--help"], ["recipes"], ["train", "--rounds", "0"]):
    run(words)
    assert "torch" not in sys.modules, words
"""


def test_help_and_mistakes_load_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


EARLY = """
import sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
from sfumato.cli import main
main()
"""


def test_ctrl_c_before_the_commands_are_loaded_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY, "train"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_with_no_argument_it_trains_the_default(tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("w") as out, (tmp_path / "err.txt").open("w") as err:
        done = subprocess.run([SFUMATO, "train"], cwd=tmp_path, stdout=out, stderr=err, timeout=PATIENCE)
    shown, progress = (tmp_path / "out.txt").read_text(), (tmp_path / "err.txt").read_text()
    assert done.returncode == 0, progress
    assert "report: runs/dp-fedavg-digits-1/report.html" in shown and "(2, 1e-05)-differential privacy" in shown
    found = json.loads((tmp_path / "runs/dp-fedavg-digits-1/run.json").read_text())
    end = f"round {found['rounds']}/{found['rounds']}  accuracy 0."
    assert progress.splitlines()[-1].startswith(end) and "\x1b" not in progress + shown
    assert all(line.startswith("round ") for line in progress.splitlines())
    assert found["accuracy"] > 0.85 and 1.99 < found["epsilon"] <= 2.0 and found["population"] == 200


@pytest.mark.parametrize("columns", [40, 100])
def test_a_live_bar_in_a_terminal(columns: int, tmp_path: Path) -> None:
    process, master = in_a_terminal(["train", *SMALL, "--out", "run"], tmp_path, columns)
    shown = read_all(master)
    assert process.wait(60) == 0, shown
    assert "3/3 " in shown and "\x1b[2K" in shown, "drawn anew in one place"
    assert ("━" in shown) is (columns == 100), "a bar where there is room"
    spent = json.loads((tmp_path / "run" / "run.json").read_text())["epsilon"]
    assert f"epsilon {rounded_up(spent, 4)}" in shown.partition("differential")[0], "a number is never cut off"
    assert "…" not in shown and "report: run/report.html" in shown


def test_python_m_sfumato_is_sfumato() -> None:
    for words in (["--version"], ["recipes"], ["recipe"]):
        module = subprocess.run(
            [sys.executable, "-m", "sfumato", *words], capture_output=True, text=True, timeout=PATIENCE
        )
        command = subprocess.run([SFUMATO, *words], capture_output=True, text=True, timeout=PATIENCE)
        assert (module.returncode, module.stdout, module.stderr) == (command.returncode, command.stdout, command.stderr)


# Stops itself after three rounds, so that it is in the middle however fast it is. What a shell runs beside itself ignores
# Ctrl-C, and so would this test's process if the tests are run so.
STOPS_AND_HEARS_CTRL_C = """
import os, signal
from sfumato.cli import main
from sfumato.run.folder import Line
signal.signal(signal.SIGINT, signal.default_int_handler)
append, lines = Line.append, 0
def counted(*arguments, **named):
    global lines
    append(*arguments, **named)
    lines += 1
    if lines == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
Line.append = counted
main()
"""


def in_a_terminal(words: list[str], place: Path, columns: int) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [SFUMATO, *words], cwd=place, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True
    )
    os.close(slave)
    return process, master


def read_all(master: int) -> str:
    content = b""
    while select.select([master], [], [], PATIENCE)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        content += part
    os.close(master)
    return content.decode()


def test_ctrl_c_gives_130_and_resume_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--rounds",
        "300",
        "--clients",
        "40",
        "--epochs",
        "60",
        "--noise-multiplier",
        "20",
        "--evaluate-every",
        "50",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS_AND_HEARS_CTRL_C, "train", *words, "--out", "run"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    metrics = tmp_path / "run" / "metrics.jsonl"
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--resume", "run"]) == 2
    assert "another process is training the run in run" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), err
    assert err.endswith("interrupted; go on with: sfumato train --resume run\n") and "Traceback" not in err
    done = metrics.read_text().count("\n")
    assert 3 <= done < 300 and not (tmp_path / "run" / "run.json").exists()
    assert run(["train", "--resume", "run", "--quiet"]) == 0
    rounds = [json.loads(line)["round"] for line in metrics.read_text().splitlines()]
    assert rounds == list(range(1, 301))


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{SFUMATO} recipes | true", shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr == ""


@pytest.mark.parametrize("columns", ["40", "80"])
def test_no_name_is_cut_off_in_help(columns: str) -> None:
    done = subprocess.run(
        [SFUMATO, "train", "--help"],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    assert "--records-per-client" in done.stdout and "--server-optimizer" in done.stdout
