"""`onoff completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Literal


def completion_command(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that completes `onoff` commands and options in a shell.

    ```console
    onoff completion bash > ~/.local/share/bash-completion/completions/onoff
    onoff completion fish > ~/.config/fish/completions/onoff.fish
    ```

    For zsh, write it as `_onoff` into a folder of `$fpath`. Nothing is written or changed by this command itself.

    Parameters
    ----------
    shell
        The shell that will read it.
    """
    from onoff.cli import app

    print(app.generate_completion(shell=shell))
