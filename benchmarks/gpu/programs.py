"""What runs on the GPU while dray is watched: programs for torch, and the same acts told to the driver's stand-in of the tests.

Each is a whole script. They print a line when they are at work, so that whoever measures knows when to look.
"""

from __future__ import annotations

_TORCH = """\
import sys, time
import torch
side = torch.randn(4096, 4096, device="cuda")
def work():
    global side
    side = torch.tanh(side @ side * 1e-3)
def done():
    torch.cuda.synchronize()
"""

_FAKE = """\
import os, sys, time
me, gib = os.getpid(), 1 << 30
def driver(*lines):
    with open(os.environ["DRAY_FAKE_NVML"], "a") as file:
        file.write("".join(line + "\\n" for line in lines))
driver(f"0.process {me} {2 * gib}", f"0.memory {80 * gib} {2 * gib + gib // 2}", "0.util 90", "0.power 500000")
told = 0.0
def work():
    global told
    time.sleep(0.002)
    if time.time() - told > 0.2:
        told = time.time()
        driver(f"0.share {me} {int(told * 1e6)} 90", f"0.peak {int(told * 1e6)} 90")
def done():
    driver(f"0.gone {me}", f"0.memory {80 * gib} {gib // 2}", "0.util 0", f"0.peak {int(time.time() * 1e6)} 0")
"""

_CONTEXT = """\
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
print("open", flush=True)
time.sleep(4)
"""

_HOLD = "print('at work', flush=True)\nuntil = time.time() + float(sys.argv[1])\nwhile time.time() < until:\n    work()\n    done() if REAL else None\ndone()\n"
_SPEED = """\
for _ in range(20): work()
done() if REAL else None
begun, count = time.time(), 0
while time.time() - begun < float(sys.argv[1]):
    for _ in range(10): work()
    if REAL: done()
    count += 10
print("steps a second:", count / (time.time() - begun), flush=True)
done()
"""
_SHORT = """\
time.sleep(3)
begun = time.time()
while time.time() - begun < 0.2: work()
done() if REAL else None
time.sleep(3)
done()
"""
_SEEN = "import torch\nprint('torch sees', torch.cuda.device_count(), torch.version.cuda)\n"
_ORDER = "import os, time\nprint(time.time(), flush=True)\ntime.sleep(0.2)\n"


def programs(*, fake: bool) -> dict[str, str]:
    """Name -> script."""
    head = (_FAKE if fake else _TORCH) + f"REAL = {not fake}\n"
    context = (
        _FAKE.replace('"0.util 90", ', "") + "print('open', flush=True)\ntime.sleep(4)\ndone()\n"
        if fake
        else _CONTEXT
    )
    return {
        "hold.py": head + _HOLD,
        "speed.py": head + _SPEED,
        "short.py": head + _SHORT,
        "context.py": context,
        "seen.py": "import os\nprint('torch sees', 0, None)\n" if fake else _SEEN,
        "order.py": _ORDER,
        "cpu_build.py": "import torch, time\nprint(torch.__version__, flush=True)\ntime.sleep(1)\n",
    }


CPU_BUILD = "__version__ = '0.0.0+cpu'\ncuda = None\nhip = None\n"
"""A torch that says of itself what a CPU build says: it hides the real one where no second environment is at hand."""
