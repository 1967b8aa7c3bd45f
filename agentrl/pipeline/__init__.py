"""The asynchronous run: admission, buffer, task mixing, resume, and the loop itself."""
