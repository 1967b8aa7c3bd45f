"""The WebShop task: an agent with a search box buys what an instruction asks for.

`task` is the entry; `generator` (with `vocabulary`) makes a shop, `official` reads WebShop's files,
`store` keeps either in memory or on disk, `search` ranks; `pages` is the site, `prompts` its texts for an
agent, `view` its pages for a person; `scoring` (with `nouns`) is the reward, `expert` shops.
"""
