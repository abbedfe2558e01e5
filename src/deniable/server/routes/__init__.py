"""The routes of the HTTP API, by what they are about.

    question_routes     prices, answers, batches, bounds
    dataset_routes      what is public about a dataset, dummy rows, registration
    people_routes       people, tokens, invitations, grants
    account_routes      ledgers, releases, labels, health and metrics
    synthetic_routes    synthetic tables: bought, published, downloaded
    standing_routes     standing questions: declared, answered for a day, read
    route_rights        may(verb): the verb of `server.roles.MATRIX` that a route needs

FastAPI validates the body (`server.request_bodies`) and the right. The route passes the work to the desk, and
`server.api_records` writes the answer. The docstrings of routes are the descriptions in /openapi.json.
"""
