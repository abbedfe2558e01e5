"""Operations: what an operator runs, configures and watches. Nothing here changes a guarantee.

settings            everything that an operator may configure
server_processes    one or several processes behind one address; a process that dies is restarted
state_holding, file_locks        locks on the state of a server, between processes
work_turns          fair queues: how much work runs at the same time, and whose is next
server_identity, key_rotation    the server's signing key and secret, and how a key is replaced
readiness, metrics, security_events      what a load balancer, a monitor and a log may see
demo_server         `deniable serve --demo`
"""
