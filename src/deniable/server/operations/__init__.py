"""Operations: what an operator runs, sets and watches. Nothing here changes a guarantee.

settings            everything an operator may choose
server_processes    one process or several behind one address; one that dies is replaced
state_holding, file_locks        who uses the state of a server, and locks between processes
work_turns          how much work runs at the same time, and who is next
server_identity, key_rotation    the server's signing key and secret, and how a key is replaced
readiness, metrics, security_events      what a load balancer, a monitor and a log may see
demo_server         `deniable serve --demo`
"""
