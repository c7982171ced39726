"""The checker of examples notices what it should, and forgives only what it says."""

from __future__ import annotations

import pytest

from tests.docs.console import Command, File, examples, matches

PAGE = """\
# A page

```python train.py
print("hi")
```

```console
$ dray runs
ID   STATUS
...
$ python train.py
hi
```

```sh
$ this is shown, not checked
```
"""


def test_files_and_commands_come_in_reading_order() -> None:
    assert list(examples(PAGE)) == [
        File("train.py", 'print("hi")\n'),
        Command(8, "dray runs", ("ID   STATUS", "...")),
        Command(11, "python train.py", ("hi",)),
    ]


def test_output_before_any_command_is_a_mistake_of_the_page() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(examples("```console\nhello\n```\n"))


@pytest.mark.parametrize(
    ("promised", "printed"),
    [
        (["hello"], "hello\n"),
        (["hello"], "hello   \n\n"),
        (["took ... s"], "took 0.3 s\n"),
        (["a", "...", "b"], "a\nb\n"),
        (["a", "...", "b"], "a\n1\n2\nb\n"),
        (["..."], "anything\nat all\n"),
        (["a.b"], "a.b\n"),
        ([], ""),
    ],
)
def test_what_was_promised_is_recognised(promised: list[str], printed: str) -> None:
    assert matches(promised, printed)


@pytest.mark.parametrize(
    ("promised", "printed"),
    [
        (["hello"], "hello there\n"),
        (["hello"], ""),
        (["a", "b"], "a\n1\nb\n"),
        (["took ... s"], "took 0.3\ns\n"),
        (["a.b"], "axb\n"),
        ([], "unpromised\n"),
    ],
)
def test_anything_else_is_not(promised: list[str], printed: str) -> None:
    assert not matches(promised, printed)
