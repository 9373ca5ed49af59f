// Package launcher starts one process per MCP session and makes sure that
// nothing of it is left when the session is over. It holds both ends of the
// socket between the two containers of a pod: [Run] is the launcher, PID 1 of
// the server's container, and [Host] is the adapter's end. [Direct] is the same
// without a socket, for one container or a laptop; all of them share one
// supervisor.
//
// # The socket
//
// The adapter listens on a Unix stream socket, the launcher dials: the volume is
// read-only in the server's container, where connecting works and binding does
// not. Every connection begins with a hello from the side that dialled, which
// names the protocol version and one of three roles:
//
//   - control, one per launcher. The adapter answers welcome or reject, then
//     sends spawn requests. What could not be started is answered here as refused
//     (no room for it now) or failed (it would not have worked at any time).
//   - process, one per process that was started: its lifeline. The hello carries
//     the write end of the process's standard input and the read end of its
//     standard output as file descriptors (SCM_RIGHTS). The adapter may send
//     stop; the launcher sends exit, once. When the connection ends for any
//     reason before that, the launcher ends the process, and the adapter takes
//     the process for lost.
//   - drain, one per preStop hook. The adapter answers drained when it is ready
//     for the server's container to go.
//
// The launcher makes up an epoch for each control connection, a secret that its
// processes never see. A process hello must name the epoch of the control
// connection that is open and the number of a request that is outstanding on it;
// the numbers begin at 1 with each epoch. While a control connection is open no
// other is accepted, so that a process of the same user cannot displace the
// launcher. What is started is fixed by the launcher's own arguments. The socket
// only says when.
//
// A frame is its length in four bytes, big endian, and one JSON object of at
// most 64 KiB. There are three frames in the life of a session, so being
// readable in a trace and open to new fields counts for more than being small,
// and with the length first a frame is refused before it is read.
//
// The adapter trusts nothing that arrives: it bounds frames, descriptors,
// connections and waiting times, closes a connection that breaks the rules and
// leaves the others alone.
//
// # The end of a session
//
// The adapter closes standard input and waits for as long as it likes. A stop or
// the end of the lifeline sends TERM to the process group and, when the grace is
// over, KILL. When the leader is dead it is left a zombie, so that its number
// cannot be given to anybody else, until the rest of the group has been sent
// KILL. Processes that have left the group are found by the variable
// SLIPWAY_SESSION in their environment, and killed until a look at /proc finds
// none. A process that leaves the group and also clears its environment is not
// found; it dies with the container. This is hygiene, not a security boundary:
// the sessions of a pod share one user.
//
// Leaders also carry a parent-death signal, which Linux ties to the thread that
// forked; all forks therefore happen on one thread that lives as long as the
// supervisor. In a pod this is not needed, because the death of PID 1 takes
// everything with it, but on a laptop a killed sidecar leaves no servers behind.
package launcher
