"""The KG task: an agent answers a question by walking a knowledge graph with seven tools.

`task` is the entry; `records` and `generator` (with `schemas`) say what is asked, `surroundings` makes a
sample's graph, `ontology` what relations and attributes there are, `variables` what the tools do,
`programs` what they mean as SPARQL, `backend` what a graph offers, `oxigraph` (embedded) and `endpoint`
(any SPARQL 1.1 server; `virtuoso_server` starts one, `export` writes graphs for one) serve it, `expert`
solves it.
"""
