package rpc

import "encoding/json"

// Agreement reads the answer to initialize. It says whether the message is an answer, whether client
// and server agree, and on which revision.
func Agreement(answer []byte) (revision string, agreed, answered bool) {
	var response struct {
		Method *string
		Error  json.RawMessage
		Result *struct {
			ProtocolVersion string
		}
	}
	if err := json.Unmarshal(answer, &response); err != nil || response.Method != nil {
		return "", false, false
	}
	if response.Result == nil {
		return "", false, response.Error != nil
	}
	return response.Result.ProtocolVersion, true, true
}
