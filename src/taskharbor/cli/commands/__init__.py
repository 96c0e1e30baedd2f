"""The commands of the program, one file each; `taskharbor.cli.lazy` imports them."""
