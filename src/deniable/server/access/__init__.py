"""Access: who sends a request, and how often they may.

    bearer_tokens       tokens that are shown once, stored as argon2id hashes, expire, and can be revoked
    oidc                tokens of an OpenID Connect issuer
    sign_in             people, their invitations and tokens, and the access log
    rate_limits         a token bucket for each name
    client_addresses    the address of a client, also behind trusted proxies

These modules turn the token of a request into a `Person`. The table in `server.roles` says what a person may do, and
`server.requests.request_gate` applies both to every request.
"""
