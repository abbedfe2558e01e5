"""The way of a request through the server, apart from what it asks.

    connections     a request arrives whole within a set time, or its connection is closed
    request_gate    every request passes it once: counted, limited, its token checked
    request_desk    requests become work in threads; a repeated key gets the stored answer
    answer_times    answers leave on a public grid of times, so that the time of the work is not seen

connections -> request_gate -> a route or a page -> request_desk -> curator -> answer_times.
"""
