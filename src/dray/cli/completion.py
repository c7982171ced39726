"""`dray completion`: the few lines that make a shell ask dray how a word goes on."""

from __future__ import annotations

import os

import click

from dray.cli.commands import COMPLETE
from dray.core.errors import UsageError

SHELLS = ("bash", "zsh", "fish")

BASH = f"""\
# dray's words in bash. Install: echo 'eval "$(dray completion bash)"' >> ~/.bashrc
_dray() {{
    local lines
    mapfile -t lines < <("${{1/#\\~/$HOME}}" {COMPLETE} bash "${{COMP_LINE:0:COMP_POINT}}" "$2" 2>/dev/null)
    COMPREPLY=("${{lines[@]:1}}")
    case ${{lines[0]}} in
    files) compopt -o default ;;
    dirs) compopt -o dirnames ;;
    nospace) compopt -o nospace ;;
    esac
}}
complete -F _dray dray
"""

ZSH = f"""\
#compdef dray
# dray's words in zsh. Install: echo 'eval "$(dray completion zsh)"' >> ~/.zshrc   (behind compinit)
_dray() {{
    local -a lines words_of shown behind
    local line
    lines=("${{(@f)$("${{(Q)words[1]}}" {COMPLETE} zsh "${{(j: :)words[1,CURRENT-1]}} ${{QIPREFIX}}${{PREFIX}}" 2>/dev/null)}}")
    case $lines[1] in
    files) _files; return ;;
    dirs) _files -/; return ;;
    nospace) behind=(-S '') ;;
    esac
    for line in "${{(@)lines[2,-1]}}"; do
        words_of+=("${{line%%$'\\t'*}}")
        shown+=("${{${{line/$'\\t'/  }}%  }}")
    done
    (( $#words_of )) && compadd -l -V dray "$behind[@]" -d shown -a words_of
}}
if [[ $funcstack[1] = _dray ]]; then
    _dray "$@"
elif (( $+functions[compdef] )); then
    compdef _dray dray
else
    autoload -Uz compinit && compinit && compdef _dray dray
fi
"""

FISH = f"""\
# dray's words in fish. Install: dray completion fish > ~/.config/fish/completions/dray.fish
function __dray_complete
    set -l lines (dray {COMPLETE} fish (commandline -cp | string collect) 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path (commandline -ct)
        case dirs
            __fish_complete_directories (commandline -ct) ''
        case '*'
            string join \\n -- $lines[2..]
    end
end
complete -c dray -e
complete -c dray -f -k -a '(__dray_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@click.command("completion")
@click.argument("shell", metavar="[bash|zsh|fish]", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> int:
    """Print what makes a shell complete dray's words.

    Commands, options, runs, computes, metrics, experiments, and fields and values in --where. The first line says how to
    install it. Without a word it is for the shell that $SHELL names.

    \b
    Examples:
      eval "$(dray completion bash)"
      dray completion fish > ~/.config/fish/completions/dray.fish
    """  # noqa: D301
    wanted = shell or os.path.basename(os.environ.get("SHELL", ""))
    if wanted not in SCRIPTS:
        raise UsageError(
            "for which shell?", why="$SHELL names none of bash, zsh and fish", hint="dray completion bash"
        )
    click.echo(SCRIPTS[wanted], nl=False)
    return 0
