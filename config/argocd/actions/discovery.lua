-- What users can do to an MCPServer in Argo CD. kubectl mcp has commands of the same names.
local isSuspended = obj.spec.suspend == true
return {
  refresh = {disabled = isSuspended},
  suspend = {disabled = isSuspended},
  resume = {disabled = not isSuspended},
}
