"""The cases, a module for each theme. `taskharbor.conformance.all_cases` collects them."""
