"""Access: who is asking, and how often they may.

    bearer_tokens       tokens shown once, kept as argon2id hashes, expiring, revocable
    oidc                tokens of an OpenID Connect issuer
    sign_in             who is here, how people come to their tokens, and the log of it
    rate_limits         a token bucket for each name
    client_addresses    where a request comes from, behind proxies that the operator named

A request's token becomes a `Person` here; what a person may do is the table in `server.roles`, and the request is let
through by `server.requests.request_gate`.
"""
