"""Settings of the whole test suite: property tests without deadlines, the same examples in CI, one thread a process.

The tiny model, the `byrote` command and a browser are here for every room; what they need is imported
when they are asked for.
"""

import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.scan.scans import Command, TinyLab

# Shared cores make single examples slow at random; a property test is judged by what it finds.
settings.register_profile("byrote", deadline=None)
settings.register_profile("byrote_ci", deadline=None, derandomize=True, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("byrote_ci" if os.environ.get("CI") else "byrote")
    # Two workers on two cores: more threads would only wait for each other.
    torch.set_num_threads(1)
    hear_signals()


def hear_signals() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C, nohup hang-ups; so would every program we start."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> "TinyLab":
    from tests.scan.scans import make_lab

    return make_lab(tmp_path_factory)


@pytest.fixture
def byrote(capsys: pytest.CaptureFixture[str]) -> "Command":
    from tests.scan.scans import make_command

    return make_command(capsys)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from tests.browsers import launched

    with launched() as browser:
        yield browser
