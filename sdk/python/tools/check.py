"""Checks the SDK: format, lints, types, and tests against the real program.

`python3 sdk/python/tools/check.py [arguments of pytest]`. What is missing is installed into
`target/python-sdk`, never for the whole machine. The program is `TESTED_LINGUA`, or
`target/debug/lingua`. Start at `main`.

Invariant: it runs on a Python with nothing installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

SDK = Path(__file__).resolve().parents[1]
ROOT = SDK.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
HOME = TARGET / "python-sdk"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
REQUIREMENTS = SDK / "tools/requirements.txt"


def main() -> int:
    """Run all steps, up to the first that fails."""
    if sys.version_info < (3, 10):  # noqa: UP036 - it may be started by any Python
        print(f"Python {sys.version.split()[0]} is too old; the SDK needs 3.10")
        return 1
    install_missing()
    python = str(BIN / "python")
    steps = [
        [python, "-m", "ruff", "format", "--quiet", "--check", "."],
        [python, "-m", "ruff", "check", "--quiet", "."],
        [python, "-m", "pyright", "--pythonpath", python],
        [python, "-m", "pytest", "--quiet", *sys.argv[1:]],
    ]
    for step in steps:
        print(f"--> {' '.join(step[1:])}", flush=True)
        status = subprocess.run(step, cwd=SDK, env=environment(), check=False).returncode
        if status != 0:
            return status
    return 0


def install_missing() -> None:
    """Make the virtual environment, unless it is what the files ask for."""
    wanted = "\n".join(
        [sys.version, str(SDK), REQUIREMENTS.read_text(), (SDK / "pyproject.toml").read_text()]
    )
    stamp = HOME / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"--> installing into {HOME}", flush=True)
    try:
        venv.create(HOME, clear=True, with_pip=True)
    except subprocess.CalledProcessError as error:
        advice = "install the package that has it, such as python3-venv"
        raise SystemExit(f"cannot make a virtual environment: {error}; {advice}") from None
    pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS), "--editable", str(SDK)], check=True)
    stamp.write_text(wanted)


def environment() -> dict[str, str]:
    """Give the environment of a step: the tools of the virtual environment come first."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    caches = {"RUFF_CACHE_DIR": str(HOME / "ruff"), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return {**os.environ, **caches, "PATH": path, "PYTHONPYCACHEPREFIX": str(HOME / "pycache")}


if __name__ == "__main__":
    sys.exit(main())
