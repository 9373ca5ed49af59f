// Package launcher starts one process per MCP session, and ends everything that the
// process has started when the session ends. It holds both ends of the socket between the
// two containers of a pod: [Run] is the launcher, PID 1 of the server's container, and
// [Host] is the adapter's end. [Direct] is the same without a socket, for one container
// or a laptop; all of them share one supervisor. [Init] has nothing to do with sessions: it
// is PID 1 for a server that speaks HTTP.
//
// # The socket
//
// The adapter listens on a Unix stream socket, the launcher dials: the volume is
// read-only in the server's container, where connecting works and binding does
// not. Every connection begins with a hello from the side that dialed, which
// names the protocol version and one of three roles:
//
//   - control, one per launcher. The adapter answers welcome or reject, then
//     sends spawn requests. The launcher answers here if a start fails: refused
//     (no room now) or failed (the command cannot start at any time). If the
//     hello says so, the adapter may also ask for usage, and the launcher answers
//     with the memory that the container uses.
//   - process, one per running process: its lifeline. The hello carries
//     the write end of the process's standard input and the read end of its
//     standard output as file descriptors (SCM_RIGHTS). The adapter may send
//     stop; the launcher sends exit, once. When the connection ends for any
//     reason before that, the launcher ends the process, and the adapter takes
//     the process for lost.
//   - drain, one per preStop hook. The adapter answers drained when it is ready
//     for the server's container to go.
//
// The launcher makes up an epoch for each control connection, a secret that its processes
// never see. A process hello must name the epoch of the open control connection, and the
// number of a request on it that has no answer yet; the numbers begin at 1 with each
// epoch. While a control connection is open the adapter accepts no other, so that a
// process of the same user cannot displace the launcher. The launcher's own arguments fix
// the command. The adapter only says when to start it.
//
// A frame is its length in four bytes, big endian, and one JSON object of at most 64 KiB.
// A session takes three frames, so that a format which is readable in a trace and open to
// new fields counts for more than a small one. The length comes first, so that the
// receiver can refuse a frame before it reads it.
//
// The adapter trusts no peer: it bounds frames, descriptors, connections and waiting
// times, closes a connection that breaks the rules, and leaves the others alone.
//
// # The end of a session
//
// The adapter closes standard input and waits for as long as it likes. On a stop, or at
// the end of the lifeline, the launcher sends TERM to the process group and, after the
// grace, KILL. It leaves a dead leader a zombie until it has sent KILL to the rest of the
// group, so that the kernel cannot give the PID to another process. The launcher finds
// processes that have left the group by the variable SLIPWAY_SESSION in their
// environment, and kills them until a look at /proc finds none. It does not find a
// process that leaves the group and also clears its environment; that dies with the
// container. This is hygiene, not a security boundary: the sessions of a pod share one
// user.
//
// Leaders also carry a parent-death signal, which Linux ties to the thread that forked;
// all forks therefore happen on one thread that lives as long as the supervisor. A pod
// does not need this, because the death of PID 1 ends all processes of a container. On a
// laptop it ends the servers of a killed sidecar.
package launcher
