-- Left out is the default, and what a manifest in Git most likely says.
obj.spec.suspend = nil
return obj
