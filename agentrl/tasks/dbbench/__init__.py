"""The DB task: an SQL agent on a table of its own.

`task` is the entry; `records` and `generator` say what is asked, `scoring` when an answer counts,
`backend` what a database offers, `sqlite` (embedded, with `mysql_semantics`) and `mysql` (a real
server; `mariadb_server` starts one) serve it, `expert` solves it.
"""
