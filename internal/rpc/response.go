package rpc

import "strconv"

// AppendResult appends a response with a result.
func AppendResult(dst, id, result []byte) []byte {
	dst = append(appendHead(dst, id), `,"result":`...)
	return append(append(dst, result...), '}')
}

// AppendError appends a response with an error, and with an id and data if there
// are any.
func AppendError(dst, id []byte, code int, text string, data []byte) []byte {
	dst = append(appendHead(dst, id), `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = AppendString(append(dst, `,"message":`...), text)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendErrorObject appends a response with an error as another response has it.
func AppendErrorObject(dst, id, object []byte) []byte {
	dst = append(appendHead(dst, id), `,"error":`...)
	return append(append(dst, object...), '}')
}

func appendHead(dst, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if len(id) > 0 {
		dst = append(append(dst, `,"id":`...), id...)
	}
	return dst
}
