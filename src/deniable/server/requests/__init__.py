"""The path of a request through the server.

    connections     limits on the number of connections and on their time
    request_gate    counts every request, applies rate limits, and checks its token
    route_shortcut       a shortcut past FastAPI for the two most frequent routes
    request_desk    runs requests in threads; a repeated idempotency key gets the stored answer
    answer_times    sends answers at times of a public grid, which hides how long the work took

connections -> request_gate -> a route or a page -> request_desk -> curator -> answer_times.
"""
