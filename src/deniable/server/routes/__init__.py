"""The routes of the HTTP API, by what they are about.

    question_routes     prices, answers, batches, bounds
    dataset_routes      what is public about a dataset, dummy rows, registration
    people_routes       people, tokens, invitations, grants
    account_routes      spending, entries, labels, health and metrics
    synthetic_routes    synthetic tables: bought, published, downloaded
    route_rights        may(verb): how a route says which verb of `server.roles.MATRIX` it needs

A route checks the body (`server.request_bodies`), hands the work to the desk, and writes the answer (`server.wire`).
"""
