"""What TaskHarbor survives: every scenario on every store, each a row of the table in docs/reliability.md.

`make chaos` runs the rows at full size and writes the table; `make test` runs the same rows small. A row is a function
in one of the `rows_*` modules. It starts real processes on a real store (`field`), hurts them, and compares what each
process noted before and after every operation (`journal`) with what the store holds at the end (`checker`).
"""
