"""Real servers for tests: started on free ports, with folders of their own, and stopped at the end."""
