"""`taskharbor completion`: the script by which a shell completes this program."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what a shell needs to complete this program.

    \b
    Examples:
      bash:  taskharbor completion bash > ~/.local/share/bash-completion/completions/taskharbor
      zsh:   taskharbor completion zsh > "${fpath[1]}/_taskharbor"
      fish:  taskharbor completion fish > ~/.config/fish/completions/taskharbor.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "taskharbor", "_TASKHARBOR_COMPLETE").source())
