// Style is prettier's; eslint looks for mistakes.
import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

export default ts.config(js.configs.recommended, ts.configs.strict, {
    files: ["src/**/*.{ts,tsx}"],
    plugins: { "react-hooks": hooks },
    rules: {
        "react-hooks/rules-of-hooks": "error",
        "react-hooks/exhaustive-deps": "off",
        "@typescript-eslint/no-non-null-assertion": "off",
        "max-len": ["error", { code: 140, ignoreStrings: true, ignoreTemplateLiterals: true }],
    },
});
