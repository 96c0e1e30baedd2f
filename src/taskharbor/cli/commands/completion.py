"""`taskharbor completion`: print a shell completion script."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    Examples:
      eval "$(taskharbor completion bash)"     # in ~/.bashrc
      eval "$(taskharbor completion zsh)"      # in ~/.zshrc
      taskharbor completion fish | source      # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "taskharbor", "_TASKHARBOR_COMPLETE").source())
