//go:build !race

package peer

const modelDefaultDepth = 4
