//go:build race

package peer

// The race detector makes the model, which has one goroutine, about ten times as slow.
const modelDefaultDepth = 3
