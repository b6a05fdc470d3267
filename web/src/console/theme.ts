/** Mantine's theme: our tokens (`styles/tokens.css`) in place of its own colours. */
import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core"

/** Mantine wants ten shades; what is shown comes from the tokens. */
const accent: MantineColorsTuple = [
  "#e8effd",
  "#cfdcfa",
  "#9db8f4",
  "#6991ee",
  "#3f70e8",
  "#2a5ee2",
  "#1b4fd8",
  "#1645be",
  "#123ba6",
  "#0c2f88",
]

export const theme = createTheme({
  fontFamily: "var(--sans)",
  fontFamilyMonospace: "var(--mono)",
  primaryColor: "accent",
  colors: { accent },
  defaultRadius: 6,
  cursorType: "pointer",
  respectReducedMotion: true,
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "20px" },
  lineHeights: { xs: "16px", sm: "20px", md: "20px", lg: "24px", xl: "28px" },
  components: {
    Button: { defaultProps: { size: "sm", variant: "default" } },
    Modal: { defaultProps: { centered: true, radius: 10, padding: 24, overlayProps: { backgroundOpacity: 0.45 } } },
    Menu: { defaultProps: { shadow: "md", radius: 8, position: "bottom-end", transitionProps: { duration: 120 } } },
    Tooltip: { defaultProps: { openDelay: 250, withArrow: false, events: { hover: true, focus: true, touch: false } } },
  },
})

export const tokens: CSSVariablesResolver = () => ({
  variables: {
    "--mantine-color-body": "var(--card)",
    "--mantine-color-text": "var(--ink)",
    "--mantine-color-dimmed": "var(--quiet)",
    "--mantine-color-placeholder": "var(--quiet)",
    "--mantine-color-default": "var(--card)",
    "--mantine-color-default-hover": "var(--hover)",
    "--mantine-color-default-color": "var(--ink)",
    "--mantine-color-default-border": "var(--line)",
    "--mantine-color-error": "var(--bad)",
    "--mantine-color-anchor": "var(--accent)",
    "--mantine-color-accent-filled": "var(--accent)",
    "--mantine-color-accent-filled-hover": "var(--accent-strong)",
    "--mantine-primary-color-filled": "var(--accent)",
    "--mantine-primary-color-filled-hover": "var(--accent-strong)",
    "--mantine-primary-color-contrast": "var(--on-accent)",
  },
  light: {},
  dark: {},
})
