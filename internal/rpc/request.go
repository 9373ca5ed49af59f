package rpc

// MethodCancelled says that the sender of a request needs no answer to it any more.
const MethodCancelled = "notifications/cancelled"

// AppendCancelled appends a notification that a request is cancelled, and why, if that is
// to be said.
func AppendCancelled(dst, id []byte, reason string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+MethodCancelled+`","params":{"requestId":`...)
	dst = append(dst, id...)
	if reason != "" {
		dst = AppendString(append(dst, `,"reason":`...), reason)
	}
	return append(dst, "}}"...)
}
