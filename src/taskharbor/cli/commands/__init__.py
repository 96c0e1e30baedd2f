"""The commands of the program, a file each; `taskharbor.cli.lazy` says how they are found."""
