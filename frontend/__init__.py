"""The pages people see: pages, templates, figures, static files. Asks services; decides nothing.

Importing this package imports no page: commands take words and numbers from it. `frontend.app.mount` adds the pages.
"""
