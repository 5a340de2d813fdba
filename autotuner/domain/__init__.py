"""The words of the program as frozen values: pydantic only, imports nothing else of ours."""
