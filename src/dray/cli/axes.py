"""An axis: where a value lies between 0 and 1, and which round values get a tick.

Read `Axis` first. Values from runs may be anything: spans that overflow, spans of nothing, the smallest numbers there are.
So a span is always taken as a difference of halves, and an axis without a width gets one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dray.core.durations import show_duration

NUMBER, WHOLE, LENGTH, MOMENT = "number", "whole", "length", "moment"
"""What the values of an axis are: any numbers, whole numbers, seconds, seconds since 1970."""
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_FLAT = 1e-12
_LEAST, _MOST = 1e-290, 1.7e308  # halves and parts of what lies between are numbers too
_EXACT = 1e12
_LONGEST_AS_TIME = 1e11  # seconds: beyond that a calendar has no word for it


class Tick(NamedTuple):
    """A value with a name."""

    place: float
    """0 at the low end, 1 at the high one."""
    text: str


class Axis:
    """From `low` to `high`, which are finite, and above 0 where `log` is set."""

    def __init__(self, low: float, high: float, *, kind: str = NUMBER, log: bool = False) -> None:
        self.kind = kind
        self.log = log
        self._only: float | None = None
        one, (low, high) = low, (self._inner(low), self._inner(high))
        if high / 2 - low / 2 <= max(max(abs(low), abs(high)) * _FLAT, _LEAST):
            self._only = one
            room = (
                0.5 if log or abs(low) < _LEAST or (kind == WHOLE and abs(low) < _EXACT) else abs(low) * 0.5
            )
            low, high = max(low - room, -_MOST), min(high + room, _MOST)
        self.low, self.high = low, high

    def place(self, value: float) -> float:
        """Where a finite `value` lies; not below 0 and not above 1."""
        part = (self._inner(value) / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return min(max(part, 0.0), 1.0)

    def ticks(self, most: int) -> list[Tick]:
        """At most `most` ticks, if it is two or more; one where there is only one value."""
        if self._only is not None:
            return self._named([self._only])
        for values in self._choices(max(most, 2)):
            inside = sorted({v for v in values if self._has(v)})
            if 2 <= len(inside) <= max(most, 2):
                return self._named(inside)
        return self._named([self._outer(self.low), self._outer(self.high)])

    def _inner(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _outer(self, value: float) -> float:
        if not self.log:
            return value
        return float(10.0 ** min(max(value, -323.0), 308.0))

    def _has(self, value: float) -> bool:
        if not math.isfinite(value) or (self.log and value <= 0):
            return False
        inner, room = self._inner(value), (self.high / 2 - self.low / 2) * 1e-9
        return self.low - room <= inner <= self.high + room

    def _choices(self, most: int) -> Iterable[Iterable[float]]:
        """Sets of round values, the ones that are liked best first."""
        if self.log:
            first, last = math.floor(self.low), math.ceil(self.high)
            if last - first <= 4:
                yield [part * _power(k) for k in range(first, last + 1) for part in (1, 2, 5)]
            for stride in (1, 2, 3, 5, 10, 20, 50, 100, 200):
                yield [_power(k) for k in range(math.ceil(first / stride) * stride, last + 1, stride)]
        for wanted in range(most, 1, -1):
            yield self._even(wanted)

    def _even(self, wanted: int) -> Iterable[float]:
        """About `wanted` round values at even distances."""
        low, high = self._outer(self.low), self._outer(self.high)
        least = (high / 2 - low / 2) / wanted * 2
        if self.kind in (LENGTH, MOMENT) and least >= 1 and max(abs(low), abs(high)) < _LONGEST_AS_TIME:
            days = _round_up(least / 86400) * 86400
            step = next((float(s) for s in _SECONDS if s >= least), max(days, 86400.0))
        else:
            step = _round_up(least)
            if self.kind == WHOLE and step:
                step = max(1.0, step if step > _EXACT else float(math.ceil(step)))
        if not step or not math.isfinite(step):
            return []
        # Round in the clock that the user looks at.
        shift = _shift(low) if self.kind == MOMENT else 0.0
        first = math.ceil((low + shift) / step - 1e-9)
        return [(first + count) * step - shift for count in range(wanted + 2)]

    def _named(self, values: Sequence[float]) -> list[Tick]:
        if self.kind == MOMENT:
            texts = _moments(values)
        elif self.kind == LENGTH:
            texts = _lengths(values)
        else:
            texts = numbers(values, plain=not self.log)
        # Where numbers lie as close as numbers can, some have the same place or the same text.
        ticks = {self.place(value): text for value, text in zip(values, texts, strict=True)}
        return [Tick(place, text) for text, place in {text: place for place, text in ticks.items()}.items()]


def numbers(values: Sequence[float], *, plain: bool = True) -> list[str]:
    """Short texts that tell the values apart; `plain`: with the same number of decimals, where that reads well."""
    largest = max(map(abs, values))
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 10 * size <= largest < 1e13 and all(value % size == 0 for value in values):
            return [f"{value / size:.0f}{letter}" if value else "0" for value in values]
    if plain and largest < 1e7:
        for decimals in range(7):
            texts = [f"{value:.{decimals}f}" for value in values]
            if all(
                math.isclose(float(t), v, abs_tol=largest * 1e-9) for t, v in zip(texts, values, strict=True)
            ):
                return [text.lstrip("-") if float(text) == 0 else text for text in texts]
    for digits in range(4 if len(values) == 1 else 3, 17):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _round_up(value: float) -> float:
    """The next greater of 1, 2, 2.5, 5, 10 times a power of ten; 0 or infinite where there is none."""
    if not 0 < value < math.inf:
        return 0.0
    power = _power(math.floor(math.log10(value)))
    return next((part * power for part in _ROUND if part * power >= value), 10 * power)


def _power(exponent: int) -> float:
    return float(f"1e{exponent}")  # 10.0**-323 is 0


def _shift(moment: float) -> float:
    """Seconds by which the user's clock is ahead of UTC."""
    try:
        return float(time.localtime(moment).tm_gmtoff)
    except (OverflowError, ValueError, OSError):
        return 0.0


def _moments(values: Sequence[float]) -> list[str]:
    """The time of day; the date too where it is not one day, or alone where the days are all there is to tell."""
    try:
        clocks = [time.localtime(value) for value in values]
    except (OverflowError, ValueError, OSError):
        return numbers(values)
    if len({clock[:3] for clock in clocks}) > 1:
        midnight = all(clock[3:6] == (0, 0, 0) for clock in clocks)
        form = "%Y-%m-%d" if midnight else "%m-%d %H:%M"
    else:
        form = "%H:%M:%S" if any(clock.tm_sec for clock in clocks) else "%H:%M"
    texts = [time.strftime(form, clock) for clock in clocks]
    if len(set(texts)) < len(texts):
        texts = _fractions(values, clocks)
    return texts if len(set(texts)) == len(texts) else numbers(values)


def _fractions(values: Sequence[float], clocks: Sequence[time.struct_time]) -> list[str]:
    """21:19:05.165, with as many decimals as tell the values apart."""
    texts: list[str] = []
    for decimals in range(1, 7):
        # Cut, not rounded: 59.9996 s must not become the next minute's.
        texts = [
            f"{time.strftime('%H:%M:%S', clock)}{f'{value % 1 + 1e-7:.7f}'[1 : 2 + decimals]}"
            for value, clock in zip(values, clocks, strict=True)
        ]
        if len(set(texts)) == len(texts):
            break
    return texts


def _lengths(values: Sequence[float]) -> list[str]:
    """0s, 1m30s, 2h: without what is nothing in all of them."""
    if max(map(abs, values)) < _LONGEST_AS_TIME:
        texts = [_length(value) for value in values]
        if len(set(texts)) == len(texts):
            return texts
    return [f"{text}s" for text in numbers(values)]


def _length(seconds: float) -> str:
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 60:
        return f"{sign}{seconds:.4g}s"
    text = show_duration(seconds)
    for empty in ("00s", "00m", "00h"):
        text = text.removesuffix(empty)
    return sign + text
