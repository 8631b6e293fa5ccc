"""The demo: a small GPT's history, made on this machine as a real git repository and then really measured."""
