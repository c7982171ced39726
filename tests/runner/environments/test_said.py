"""What builders print, recorded, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.runner.environments import names
from dray.runner.environments.said import Watch, is_unknown, sentence, size_of

RESOLVED_TO_NOTHING = """\
error: No solution found when resolving dependencies
  cause: Because you require numpy==1.26.4 and numpy>=2, we can conclude that your requirements are unsatisfiable.
"""
OLDER = """\
  \u00d7 No solution found when resolving dependencies:
  \u2570\u2500\u25b6 Because only numpy<=2.3 is available and you require
      numpy>=9, we can conclude that your requirements are unsatisfiable.
"""
NO_ANSWER = """\
error: Failed to fetch: http://127.0.0.1:9/simple/six/
  cause: error sending request for url (http://127.0.0.1:9/simple/six/)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
ABI = """\
error: No solution found when resolving dependencies
  cause: Because tensorflow==1.4.0 has no wheels with a matching Python ABI tag (e.g., `cp311`) and you require tensorflow==1.4, we can conclude that your requirements are unsatisfiable.

hint: You require CPython 3.11 (`cp311`), but we only found wheels for `tensorflow` (v1.4.0) with the following Python ABI tags: `cp27m`
"""
FULL = """\
error: Failed to install: numpy-2.4.6.whl (numpy==2.4.6)
  cause: Failed to copy to `/x/libscipy.so`
  cause: failed to copy file from /y to /x: No space left on device (os error 28)
"""
PYTHON = """\
error: Request failed after 3 retries in 9.6s
  cause: Failed to download `https://example.org/cpython-3.14.tar.gz`
  cause: client error (Connect)
  cause: failed to lookup address information: Name or service not known
"""
RATTLER = (
    "error: error sending request for url (https://example.org/noarch/repodata.json) Caused by: client error (Connect) "
    "Caused by: dns error Caused by: Name or service not known\n"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RESOLVED_TO_NOTHING, "Because you require numpy==1.26.4 and numpy>=2."),
        (OLDER, "Because only numpy<=2.3 is available and you require numpy>=9."),
        (NO_ANSWER, "Failed to fetch: http://127.0.0.1:9/simple/six/: Connection refused (os error 111)"),
        (FULL, "No space left on device"),
        (
            PYTHON,
            (
                "Failed to download `https://example.org/cpython-3.14.tar.gz`: "
                "failed to lookup address information: Name or service not known"
            ),
        ),
        (
            RATTLER,
            "error sending request for url (https://example.org/noarch/repodata.json): Name or service not known",
        ),
        ("one\n\x1b[31mtwo\x1b[0m\n\n", "two"),
        ("", ""),
    ],
)
def test_the_sentence_that_tells_most(text: str, says: str) -> None:
    assert sentence(text) == says


def test_a_hint_is_no_part_of_the_sentence() -> None:
    assert sentence(ABI).endswith("and you require tensorflow==1.4.")


def test_a_sentence_has_an_end() -> None:
    assert len(sentence("error: " + "x" * 10000)) <= 400


def test_a_log_tells_how_far_the_build_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\nDownloading scipy (33.7MiB)\nDownloading numpy (16.1MiB)\n Downloa")
    watch = Watch(str(log), 7, 7)
    first = watch.news()
    with log.open("a") as file:
        file.write("ded numpy\n")
    second = watch.news()
    with log.open("a") as file:
        file.write("Prepared 7 packages in 697ms\nInstalled 7 packages in 76ms\n + numpy==2.4.6\n")

    assert first
    assert (first["phase"], first["done"], first["total"]) == (
        "downloading",
        0,
        size_of("33.7MiB") + size_of("16.1MiB"),
    )
    assert second
    assert (second["done"], second["text"], watch.to_come) == (
        size_of("16.1MiB"),
        "numpy",
        size_of("33.7MiB"),
    )
    third = watch.news()
    assert third
    assert (third["phase"], third["done"], third["total"]) == ("installing", 7, 7)
    assert watch.news() is None


@pytest.mark.parametrize(
    ("words", "size"), [("1.0KiB", 1024), ("2.5MiB", 2621440), ("3GiB", 3 << 30), ("12B", 12), ("much", 0)]
)
def test_sizes_are_read(words: str, size: int) -> None:
    assert size_of(words) == size


def test_a_package_that_nobody_has_is_told_by_its_name() -> None:
    found = is_unknown(
        "Because scikit-lern was not found in the package registry and you require scikit-lern."
    )

    assert found == "scikit-lern"
    assert is_unknown("Because a==1 depends on b, and b>=2 is not available") is None
    assert (
        names.unknown("scikit-lern")
        == "there is no package `scikit-lern` in the index; did you mean `scikit-learn`?"
    )
    assert names.unknown("zzzzqq") == "there is no package `zzzzqq` in the index"
