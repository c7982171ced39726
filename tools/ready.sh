# Sourced by ../dray and ../dev with $_dray_root set: makes sure that .venv is there and fits.
# The warm path is builtins only. Names start with _dray_ because assigning to a variable that the caller exports
# would change the environment of the user's script.

_dray_ready() { # dray: what running needs; dev: what working on it needs
    _dray_stamp=$_dray_root/.venv/dray-stamp
    if [ -x "$_dray_root/.venv/bin/python" ] && [ -f "$_dray_stamp" ] &&
        ! [ "$_dray_root/pyproject.toml" -nt "$_dray_stamp" ] && ! [ "$_dray_root/pyproject.toml" -ot "$_dray_stamp" ]; then
        { IFS= read -r _dray_kind && IFS= read -r _dray_place; } <"$_dray_stamp"
        if [ "$_dray_place" = "$_dray_root" ]; then
            case $1:$_dray_kind in dray:* | dev:dev) return ;; esac
        fi
    fi
    _dray_set_up "$1" || exit
}

_dray_set_up() {
    for _dray_python in python3 python3.14 python3.13 python3.12 python3.11; do
        # Asking it is the only way to know: a version manager's shim may be there and refuse to run.
        if "$_dray_python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            "$_dray_python" -I -B "$_dray_root/tools/set_up.py" "$1"
            return
        fi
    done
    if command -v uv >/dev/null 2>&1; then
        uv run --quiet --no-project --no-config --python '>=3.11' python -I -B "$_dray_root/tools/set_up.py" "$1"
        return
    fi
    echo "dray needs Python 3.11 or newer, and found neither it nor \`uv\` on your PATH." >&2
    echo "  try: install Python 3.11 or newer, or uv (which brings one): https://docs.astral.sh/uv/" >&2
    return 125
}
