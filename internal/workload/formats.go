package workload

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
)

// toFormat2 does what the API did on 2026-11-17: transport.http became
// transport.streamableHTTP, transport.stdio.era became transport.sessions, and the limits of
// the adapter that are numbers of bytes became quantities.
func toFormat2(content map[string]any) {
	spec := object(content["spec"])
	transport := object(spec["transport"])
	rename(transport, "http", "streamableHTTP")
	if stdio := object(transport["stdio"]); stdio != nil {
		if sessions, ok := map[any]string{"Legacy": "Stateful", "Modern": "Stateless"}[stdio["era"]]; ok {
			transport["sessions"] = sessions
		}
		delete(stdio, "era")
		if framing := stdio["framing"]; framing == nil || framing == "Newline" {
			delete(transport, "stdio")
		}
	}
	limits := object(object(spec["adapter"])["limits"])
	for before, after := range map[string]string{"bodyBytes": "body", "lineBytes": "line", "replayBytes": "replay"} {
		if number, ok := limits[before].(json.Number); ok {
			if bytes, err := number.Int64(); err == nil {
				limits[before] = resource.NewQuantity(bytes, resource.BinarySI).String()
			}
		}
		rename(limits, before, after)
	}
}

// object is the members of a value; nil if it has none. A nil map can be read.
func object(value any) map[string]any {
	members, _ := value.(map[string]any)
	return members
}

func rename(members map[string]any, before, after string) {
	if value, ok := members[before]; ok {
		members[after] = value
		delete(members, before)
	}
}
