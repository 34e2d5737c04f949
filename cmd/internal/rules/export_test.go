package rules

// SettingNames are the fields beside the rules.
var SettingNames = settingNames

// Readable checks what can be checked before the YAML library reads.
var Readable = readable
