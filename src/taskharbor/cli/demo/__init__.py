"""`taskharbor demo`: the tasks it runs, the tour through them, and the screen it is told on."""
