"""MySQL 8 on top of SQLite: `statements.plan` compiles one MySQL statement into SQLite's language.

Read in this order: `syntax` (text to tree), `types` (what MySQL compares with what, and how),
`scope` (names), `expressions`, `groups` and `builtins` (meaning), `queries`, `statements`
(SELECT, INSERT, UPDATE, DELETE), `catalogue` (SHOW and information_schema); `functions`,
`aggregates`, `collation`, `numbers`, `dates`, `regex` are what runs inside SQLite.

Known differences from MySQL 8, all of them refused or documented, none silent: no ONLY_FULL_GROUP_BY
(a bare column comes from the group's first row, as in MariaDB); DECIMAL is exact to 15 digits; NOW()
stands still; no user variables, JSON, RAND, WITH ROLLUP, multi-table UPDATE or DELETE (error 1235).
"""
